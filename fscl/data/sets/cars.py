"""Cars: 60 classes of Stanford Cars (Krause, Stark, Deng and Fei-Fei 2013), called as there, with _ for spaces.

`cars_144.tar` has 30 photographs of each, and 29 of one, the shorter side 144 pixels. What is read, and how the classes are
split, is said in `fscl.data.fine_grained`.
"""

from typing import Literal

from fscl.data.fine_grained import FineGrained

CLASSES = """
Aston_Martin_V8_Vantage_Coupe_2012 Audi_A5_Coupe_2012 Audi_S5_Coupe_2012 Audi_S6_Sedan_2011 BMW_3_Series_Wagon_2012
BMW_6_Series_Convertible_2007 BMW_ActiveHybrid_5_Sedan_2012 BMW_M5_Sedan_2010 BMW_X5_SUV_2007
BMW_Z4_Convertible_2012 Bentley_Continental_GT_Coupe_2012 Bugatti_Veyron_16.4_Convertible_2009
Bugatti_Veyron_16.4_Coupe_2009 Buick_Enclave_SUV_2012 Cadillac_Escalade_EXT_Crew_Cab_2007
Chevrolet_Camaro_Convertible_2012 Chevrolet_Cobalt_SS_2010 Chevrolet_Malibu_Hybrid_Sedan_2010
Chevrolet_Malibu_Sedan_2007 Chevrolet_Silverado_1500_Classic_Extended_Cab_2007
Chevrolet_Silverado_1500_Extended_Cab_2012 Chevrolet_Silverado_1500_Regular_Cab_2012
Chevrolet_Silverado_2500HD_Regular_Cab_2012 Chrysler_Aspen_SUV_2009 Chrysler_PT_Cruiser_Convertible_2008
Dodge_Caravan_Minivan_1997 Dodge_Dakota_Club_Cab_2007 Dodge_Dakota_Crew_Cab_2010 Dodge_Durango_SUV_2012
Dodge_Magnum_Wagon_2008 Dodge_Ram_Pickup_3500_Crew_Cab_2010 Dodge_Ram_Pickup_3500_Quad_Cab_2009
Dodge_Sprinter_Cargo_Van_2009 Ferrari_458_Italia_Convertible_2012 Ford_Expedition_EL_SUV_2009
Ford_F-150_Regular_Cab_2007 Ford_F-150_Regular_Cab_2012 Ford_Fiesta_Sedan_2012 Ford_Freestar_Minivan_2007
GMC_Terrain_SUV_2012 Geo_Metro_Convertible_1993 HUMMER_H2_SUT_Crew_Cab_2009 Honda_Odyssey_Minivan_2012
Hyundai_Genesis_Sedan_2012 Hyundai_Veloster_Hatchback_2012 Hyundai_Veracruz_SUV_2012 Isuzu_Ascender_SUV_2008
Jeep_Compass_SUV_2012 MINI_Cooper_Roadster_Convertible_2012 Mercedes-Benz_300-Class_Convertible_1993
Nissan_Juke_Hatchback_2012 Nissan_Leaf_Hatchback_2012 Porsche_Panamera_Sedan_2012 Ram_C_V_Cargo_Van_Minivan_2012
Rolls-Royce_Phantom_Drophead_Coupe_Convertible_2012 Scion_xD_Hatchback_2012 Spyker_C8_Coupe_2009
Suzuki_Aerio_Sedan_2007 Suzuki_SX4_Sedan_2012 Toyota_Camry_Sedan_2012
"""


class Cars(FineGrained):
    """60 classes of Stanford Cars."""

    name = "cars"
    summary = "60 models of cars of Stanford Cars, 30 photographs each; in colour, none to train on."
    title = "the set of cars"
    folders = ("photos", "cars", "photos/cars")
    archives = ("cars_144", "cars.")
    classes = tuple(CLASSES.split())
    parts = (classes,)
    layouts = "the folder cars/ with one sub-folder a class, or an archive of it, cars_144.tar,"
    in_imagenet = "cars too, by kind of body and not by model"

    class Options(FineGrained.Options):
        """Nothing of its own."""

        name: Literal["cars"] = "cars"


CARS = Cars()
